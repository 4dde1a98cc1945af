// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import "context"

// OnLoop lets the loop of a node call f.
func (n *Node) OnLoop(ctx context.Context, f func()) error { return n.call(ctx, f) }

// AppendForward and DecodeForward are the encoding of messages for singletons.
var (
	AppendForward = appendForward
	DecodeForward = decodeForward
)
