// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench holds the benchmarks of "refold bench". Each measures a figure
// beside its raw limit, taken in turns in the same run, and prints their ratio
// with the goal that Refold has set itself:
//
//	limit ── refold ── limit ── refold ── … ── medians ── ratio ── goal met?
//
// Absolute figures tell about the machine, ratios about Refold.
package bench
