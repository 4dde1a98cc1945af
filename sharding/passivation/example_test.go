// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation_test

import (
	"fmt"
	"time"

	"github.com/refold-io/refold/sharding/passivation"
)

// A shard with room for two entities, which gives up the one that nobody needed for longest, or for a minute.
func Example() {
	settings := passivation.Settings{Limit: 2, IdleTimeout: time.Minute}
	entities, err := passivation.New(settings, passivation.PerShard(settings.Limit, 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	for second, id := range []string{"ann", "bob", "ann", "cid"} {
		if leaves := entities.Touch(time.Duration(second)*time.Second, id); len(leaves) > 0 {
			fmt.Println(id, "comes,", leaves, "leaves")
		}
	}
	fmt.Println(entities.Tick(62*time.Second+entities.Next()), "leave")
	// Output:
	// cid comes, [bob] leaves
	// [ann cid] leave
}
