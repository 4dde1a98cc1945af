// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package delivery

import "errors"

// ErrFull says that an outbox holds as many unconfirmed deliveries as it may. It
// is no refusal: the same command can succeed later.
var ErrFull = errors.New("delivery: too many unconfirmed deliveries")
