// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package embedded

import "os"

// hold takes no lock: this platform has no file lock that is released when the process ends.
func hold(*os.File) (bool, error) { return true, nil }
