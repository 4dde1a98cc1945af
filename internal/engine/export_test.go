// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import "reflect"

// SharedIsZero reports whether no machine has changed the fields that all machines share.
func (c *Config) SharedIsZero() bool { return reflect.ValueOf(&c.none).Elem().IsZero() }
