// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import "github.com/syndtr/goleveldb/leveldb/storage"

func check(storage.Storage, bool) error { return nil }
