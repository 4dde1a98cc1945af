// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package operator holds the commands that look into journals.
package operator
