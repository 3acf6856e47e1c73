package scheduler

import "slices"

// itemQueue hands out items in the order in which they are fired. Most become due in this
// order, many of them at once: they are sorted together, which costs a fraction of a heap
// of all of them. A heap has only those that come before items that are sorted already,
// such as those of a higher priority. The zero value is empty.
type itemQueue struct {
	list   []dueItem // those before next were handed out, those from sorted on were added since
	next   int
	sorted int
	late   itemHeap // of items that come before the last sorted one
}

func (q *itemQueue) len() int { return len(q.list) - q.next + len(q.late) }

func (q *itemQueue) push(it dueItem) {
	switch {
	case len(q.list) < cap(q.list):
	case q.next > len(q.list)/2: // use the memory of those that were handed out
		q.list = slices.Delete(q.list, 0, q.next)
		q.sorted -= q.next
		q.next = 0
	default: // append would copy long lists more often
		q.list = slices.Grow(q.list, len(q.list))
	}
	q.list = append(q.list, it)
}

// sort sorts what was added.
func (q *itemQueue) sort() {
	added := q.list[q.sorted:]
	if len(added) > 1 {
		slices.SortFunc(added, func(a, b dueItem) int { return a.compare(&b) })
	}
	late := 0
	if q.sorted > q.next {
		for last := &q.list[q.sorted-1]; late < len(added) && added[late].compare(last) < 0; late++ {
			q.late.push(added[late])
		}
	}
	q.list = slices.Delete(q.list, q.sorted, q.sorted+late)
	q.sorted = len(q.list)
}

// first is the item that is handed out next; nil if there is none.
func (q *itemQueue) first() *dueItem {
	if q.sorted < len(q.list) {
		q.sort()
	}
	switch {
	case q.next == len(q.list) && len(q.late) == 0:
		return nil
	case q.next == len(q.list) || len(q.late) > 0 && q.late[0].compare(&q.list[q.next]) < 0:
		return &q.late[0]
	}
	return &q.list[q.next]
}

// pop takes the first item, which there must be.
func (q *itemQueue) pop() (it dueItem) {
	first := q.first()
	if len(q.late) > 0 && first == &q.late[0] {
		return q.late.pop()
	}
	it, *first = *first, dueItem{}
	q.next++
	return it
}

// itemHeap has the item that comes before all others first. Unlike container/heap it
// allocates nothing for an item.
type itemHeap []dueItem

func (h *itemHeap) push(it dueItem) {
	list := append(*h, it)
	i := len(list) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if it.compare(&list[parent]) >= 0 {
			break
		}
		list[i] = list[parent]
		i = parent
	}
	list[i] = it
	*h = list
}

func (h *itemHeap) pop() dueItem {
	list := *h
	first, last := list[0], list[len(list)-1]
	list[len(list)-1] = dueItem{}
	list = list[:len(list)-1]
	i := 0
	for child := 1; child < len(list); child = 2*i + 1 {
		if child+1 < len(list) && list[child+1].compare(&list[child]) < 0 {
			child++
		}
		if list[child].compare(&last) >= 0 {
			break
		}
		list[i] = list[child]
		i = child
	}
	if len(list) > 0 {
		list[i] = last
	}
	*h = list
	return first
}
