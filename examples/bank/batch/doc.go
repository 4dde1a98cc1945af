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
// In a line with the command open, the last field is the owner. The first line may be the header
// above. A line ends at a line break even within quotes, so that a bad line does not affect the
// following ones. Blank lines are skipped, but counted.
package batch
