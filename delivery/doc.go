// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package delivery redelivers until confirmed; a receiver without an Inbox sees
// duplicates.
package delivery
