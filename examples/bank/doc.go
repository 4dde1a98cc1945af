// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Command bank is the example of Refold: bank accounts in US dollars and New Taiwan dollars with
// deposits, withdrawals, transfers and a history.
//
//	go run ./examples/bank serve
//	go run ./examples/bank generate --accounts 1000 --commands 100000 -o commands.csv
//	go run ./examples/bank apply commands.csv
//	go run ./examples/bank audit
//
// At any moment and through any crash, no money is created, lost or counted twice. The audit proves
// it from the journal alone.
//
// Start reading at account.go, which contains the complete account. README.md describes the other
// files.
package main
