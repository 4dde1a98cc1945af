// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package batch reads and makes files of commands to bank accounts:
//
//	id,command,account,amount,currency,to
//	1,open,alice,,USD,Alice Chen
//	2,deposit,alice,100.00,USD,
//	3,transfer,alice,12.50,USD,bob
//	4,withdraw,alice,20,TWD,
//	5,close,alice,,,
//
// In an open line, the last field is the owner. The first line may be the header
// above. A line ends at a line break, whatever is quoted, so that a bad one
// spoils no other; blank ones are left out, but counted.
package batch
