// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package fielderror reports invalid fields of configurations.
//
// A validation collects an Error for each invalid field in an Errors value. A package that builds
// its configuration on the one of another package renames the fields of its errors with Rename, so
// that users see the names of the fields that they set.
package fielderror
