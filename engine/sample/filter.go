package sample

import "math"

// filter weighs the tokens that temperature and filters leave.
func (s *Sampler) filter(p *Params, best int32) Distribution {
	top, scale := s.row[best], weightScale(p.Temperature)
	d := Distribution{Weights: s.weights}
	if k := p.TopK; k > 0 && k < len(s.row) {
		d.IDs = s.topK(k)
		for _, id := range d.IDs {
			s.weights[id] = s.weigh(id, top, scale)
		}
		d.Total = s.total(d.IDs)
	} else {
		d.sums = s.sums
		d.Total = s.weighAll(top, scale)
	}
	if p.TopP < 1 {
		s.topP(&d, p.TopP)
	}
	if p.MinP > 0 {
		s.minP(&d, p.MinP)
	}
	return d
}

// weigh returns the weight of one token, given the largest logit.
func (s *Sampler) weigh(id int32, top float32, scale float64) uint64 {
	return weight((float64(s.row[id]) - float64(top)) * scale)
}

// weighAll weighs the vocabulary, sums each block, and returns the total.
func (s *Sampler) weighAll(top float32, scale float64) uint64 {
	total := uint64(0)
	for b := range s.sums {
		lo, hi := b*blockLen, min((b+1)*blockLen, len(s.row))
		sum := uint64(0)
		for i, v := range s.row[lo:hi] {
			w := weight((float64(v) - float64(top)) * scale)
			s.weights[lo+i] = w
			sum += w
		}
		s.sums[b] = sum
		total += sum
	}
	return total
}

func (s *Sampler) total(ids []int32) uint64 {
	sum := uint64(0)
	for _, id := range ids {
		sum += s.weights[id]
	}
	return sum
}

// topK returns the k best tokens, ascending by id.
func (s *Sampler) topK(k int) []int32 {
	for b := range s.blocks {
		s.blocks[b] = int32(b)
	}
	blocks, floor := s.blocks, float32(math.Inf(-1))
	if k < len(blocks) {
		// The k best maxima are k logits that all others must beat, ties going to lower ids and so to
		// lower blocks: nothing outside their blocks, and nothing below the least of them, can belong.
		blocks = cut(s.maxima, blocks, nil, uint64(k), &s.bins)
		floor = s.maxima[blocks[0]]
		for _, b := range blocks {
			floor = min(floor, s.maxima[b])
		}
	}
	n := 0 // as in atLeast, without a branch
	for _, b := range blocks {
		lo := int(b) * blockLen
		for i, v := range s.row[lo:min(lo+blockLen, len(s.row))] {
			s.ids[n] = int32(lo + i)
			if v >= floor {
				n++
			}
		}
	}
	return cut(s.row, s.ids[:n], nil, uint64(k), &s.bins)
}

// topP drops all but the best tokens that hold p of the mass.
func (s *Sampler) topP(d *Distribution, p float64) {
	target := max(1, uint64(math.Ceil(p*float64(d.Total))))
	if d.IDs == nil {
		// Tokens below (1-p)/vocabulary of the mass hold less than 1-p of it together, so the kept set
		// ends above them. Half of that leaves room for rounding.
		s.keep(d, uint64((1-p)*float64(d.Total)/float64(2*len(s.row))))
	}
	d.IDs = cut(s.row, d.IDs, s.weights, target, &s.bins)
	d.Total = s.total(d.IDs)
}

// minP drops tokens below p times the best one's probability.
func (s *Sampler) minP(d *Distribution, p float64) {
	s.keep(d, uint64(math.Ceil(p*(1<<weightBits))))
	d.Total = s.total(d.IDs)
}

// keep leaves the tokens whose weight is at least floor, and at least 1. It does not update Total.
func (s *Sampler) keep(d *Distribution, floor uint64) {
	floor = max(floor, 1)
	n := 0 // as in atLeast, without a branch
	if d.IDs != nil {
		for _, id := range d.IDs {
			s.ids[n] = id
			if s.weights[id] >= floor {
				n++
			}
		}
		d.IDs = s.ids[:n]
		return
	}
	for b, sum := range s.sums {
		if sum < floor {
			continue
		}
		lo := b * blockLen
		for i, w := range s.weights[lo:min(lo+blockLen, len(s.weights))] {
			s.ids[n] = int32(lo + i)
			if w >= floor {
				n++
			}
		}
	}
	d.IDs = s.ids[:n]
}
