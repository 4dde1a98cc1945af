// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/refold-io/refold/cmd/refold/operator"

// ddataCommand is "refold ddata".
type ddataCommand struct{ operator.Durable }
