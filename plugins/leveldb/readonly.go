// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import "github.com/syndtr/goleveldb/leveldb/storage"

type readOnlyFiles struct{ storage.Storage }
