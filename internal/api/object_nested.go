package api

import "fmt"

// list takes an array of objects, each of which is read on its own.
func (o *object) list(name string, known []string, most int, read func(item *object)) {
	m, is := o.take(name)
	if is != aValue {
		return
	}
	if m.value[0] != '[' {
		o.fault(m.written, "must be an array of objects, not %s", kindOf(m.value))
		return
	}
	all := elements(m.value)
	if len(all) > most {
		o.fault(m.written, "has %d elements, the most is %d", len(all), most)
		return
	}
	for i, element := range all {
		place := fmt.Sprintf("%s[%d]", m.written, i)
		if element[0] != '{' {
			o.fault(place, "must be an object, not %s", kindOf(element))
			continue
		}
		item := &object{known: known, within: place + "."}
		if !item.split(element) {
			o.fault(place, "has more than %d members", maxMembers)
			continue
		}
		item.spell()
		read(item)
		o.faults = append(o.faults, item.finish()...)
		if len(o.faults) >= maxFaults {
			return
		}
	}
}

// inner takes an object, whose members are read on their own.
func (o *object) inner(name string, known []string, read func(inner *object)) {
	m, is := o.take(name)
	if is != aValue {
		return
	}
	if m.value[0] != '{' {
		o.fault(m.written, "must be an object, not %s", kindOf(m.value))
		return
	}
	inner := &object{known: known, within: m.written + "."}
	if !inner.split(m.value) {
		o.fault(m.written, "has more than %d members", maxMembers)
		return
	}
	inner.spell()
	read(inner)
	o.faults = append(o.faults, inner.finish()...)
}
