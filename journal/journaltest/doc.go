// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package journaltest checks journals and breaks them.
package journaltest
