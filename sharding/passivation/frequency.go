// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation

// maxCount is how far accesses are counted with aging, so that all priorities lie within so many
// numbers from the age on.
const maxCount = slots - 1

// frequency gives up who has the lowest priority, which is the number of accesses, with
// aging added to the age at the last one. Of equal ones it gives up the oldest.
type frequency struct {
	lowest *bucket
	n      int
	aging  bool
	age    uint64 // priority of the last one that was given up; nobody has a lower one
	// With aging an access may pass over any number of buckets. Which ones there are is kept in a
	// set that is searched in fixed time.
	buckets map[uint64]*bucket
	there   slotSet
}

// bucket holds all of one priority.
type bucket struct {
	priority   uint64
	all        list
	next, prev *bucket
}

func newFrequency(aging bool) *frequency {
	f := &frequency{aging: aging}
	if aging {
		f.buckets = map[uint64]*bucket{}
	}
	return f
}

func (f *frequency) len() int       { return f.n }
func (f *frequency) resize(int)     {}
func (f *frequency) add(e *entry)   { f.n++; e.count = 1; f.put(e, f.below(f.age+1)) }
func (f *frequency) evict(e *entry) { f.grow(e.bucket.priority); f.remove(e) }

func (f *frequency) grow(age uint64) {
	if f.aging {
		f.age = age
	}
}

func (f *frequency) remove(e *entry) {
	f.n--
	f.take(e)
}

func (f *frequency) touch(e *entry) {
	if e.count < maxCount || !f.aging {
		e.count++
	}
	at := e.bucket
	if f.aging {
		at = f.below(e.count + f.age)
	} else if at.next != nil && at.next.priority == e.count {
		at = at.next
	}
	// The bucket behind which it goes may be its own, and vanish with it.
	if at == e.bucket && at.all.n == 1 {
		if at.priority == e.count+f.age {
			return
		}
		at = at.prev
	}
	f.take(e)
	f.put(e, at)
}

func (f *frequency) victim() *entry {
	if f.lowest == nil {
		return nil
	}
	return f.lowest.all.oldest
}

// below returns the bucket with the highest priority up to this one, nil if there is
// none.
func (f *frequency) below(priority uint64) *bucket {
	if !f.aging {
		if f.lowest != nil && f.lowest.priority <= priority {
			return f.lowest // only asked for 1
		}
		return nil
	}
	slot, found := f.there.atMost(uint(priority % slots))
	if !found {
		if slot, found = f.there.atMost(slots - 1); !found {
			return nil
		}
	}
	// The priority is the one with that slot from the age on.
	p := f.age + (uint64(slot)-f.age)%slots
	if p > priority {
		return nil
	}
	return f.buckets[p]
}

// put files an entity by its count, into the bucket or right behind it.
func (f *frequency) put(e *entry, at *bucket) {
	priority := e.count + f.age
	if at == nil || at.priority != priority {
		b := &bucket{priority: priority, prev: at}
		if at != nil {
			b.next, at.next = at.next, b
		} else {
			b.next, f.lowest = f.lowest, b
		}
		if b.next != nil {
			b.next.prev = b
		}
		if f.aging {
			f.buckets[priority] = b
			f.there.set(uint(priority % slots))
		}
		at = b
	}
	e.bucket = at
	at.all.push(e)
}

// take removes an entity from its bucket, and that with its last one.
func (f *frequency) take(e *entry) {
	b := e.bucket
	e.bucket = nil
	b.all.remove(e)
	if b.all.n > 0 {
		return
	}
	if b.prev != nil {
		b.prev.next = b.next
	} else {
		f.lowest = b.next
	}
	if b.next != nil {
		b.next.prev = b.prev
	}
	if f.aging {
		delete(f.buckets, b.priority)
		f.there.clear(uint(b.priority % slots))
	}
}
