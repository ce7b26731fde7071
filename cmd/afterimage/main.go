// SPDX-License-Identifier: Apache-2.0

// Command afterimage serves vision-language models with every image encoded once per fleet.
package main

func main() {}
