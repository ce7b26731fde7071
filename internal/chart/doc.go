// SPDX-License-Identifier: Apache-2.0

// Package chart writes pages of figures: one self-contained HTML file with tables and SVG plots, which
// works offline, in light and dark, and needs no script.
//
// A Page is made of Sections; a Section holds text, a Table and plots. Whatever text comes in is
// escaped. Plots are values: Lines (distributions, or points over time) and Timeline (spans on rows).
package chart
