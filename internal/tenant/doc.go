// SPDX-License-Identifier: Apache-2.0

// Package tenant knows who may use a gateway: API keys, the tenant that each belongs to, what keeps the
// tenants' embeddings apart, and how much each may ask for.
//
// Keys come from a file, which holds their hashes and no key, or are given in the clear by flag or
// environment. Both become a Set, which never changes; Keys holds the Set that is in force and replaces it
// when the file changes. What tenants have used up is in Meters, which outlive the Set. The package knows
// neither HTTP nor a queue: package admit does.
package tenant
