// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import "context"

// OnLoop calls f in the loop of a node.
func (n *Node) OnLoop(ctx context.Context, f func()) error { return n.call(ctx, f) }

// AppendForward and DecodeForward encode and decode messages for singletons.
var (
	AppendForward = appendForward
	DecodeForward = decodeForward
)
