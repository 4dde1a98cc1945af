// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package embedded

import "os"

// hold takes no lock, because this platform has none that ends with its process.
func hold(*os.File) (bool, error) { return true, nil }
