// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package browsertest contains only tests. They use the console and the page of the bank in a
// headless Chromium. It is a module of its own, so that the client of the browser stays out of the
// main go.sum.
package browsertest
