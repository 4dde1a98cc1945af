// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command bank is the example of Refold: bank accounts in US dollars and New
// Taiwan dollars that can be opened, paid into, paid out from, looked up and
// closed, and that transfer money to each other.
//
//	go run ./examples/bank serve
//	go run ./examples/bank generate --accounts 1000 --commands 100000 -o commands.csv
//	go run ./examples/bank apply commands.csv
//	go run ./examples/bank audit
//
// It is correct the way a bank is: at any moment and through any crash no money
// is made, lost or counted twice, and the audit proves it from the journal alone.
//
// Begin to read at account.go, which is the whole account. README.md says where
// the rest is.
package main
