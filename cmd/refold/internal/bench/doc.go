// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench holds the benchmarks of "refold bench". Each measures a figure and its raw limit in
// turns in the same run, and prints their ratio with Refold's goal:
//
//	limit ── refold ── limit ── refold ── … ── medians ── ratio ── goal met?
//
// Absolute figures describe the machine, ratios describe Refold.
package bench
