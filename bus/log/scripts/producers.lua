-- Shared by the scripts that number appends: it stands before their own text.
--
-- A head keeps of a producer, in its field p:<producer>, "<term> <answer>|<answer before it>". Within a term a producer
-- numbers its appends 1, 2, 3 …; its terms only grow. Only so many producers are kept: those that published longest ago
-- are forgotten, and the head's `floor` is the highest term that any of them had. A producer that is not kept begins
-- above the floor, so a late copy of an append is refused, whether its producer is forgotten or has begun a new term.

-- Gives the last answers of a producer's term, or nil where it begins with this append; and, where the term is over,
-- a floor that the next one has to be above.
local function answers_of(kept, floor, term)
  if kept then
    if string.sub(kept, 1, #term + 1) == term .. ' ' then return string.sub(kept, #term + 2) end
    local newest = string.match(kept, '^%d+')
    if tonumber(term) <= tonumber(newest) then return nil, newest end
  elseif floor and tonumber(term) <= tonumber(floor) then
    return nil, floor
  end
  return nil
end

-- Counts a producer that is new to a head, and forgets half of them where there are too many.
local function count_producer(head, field, most)
  if redis.call('HINCRBY', head, 'producers', 1) <= most then return end
  local all, found, floor = redis.call('HGETALL', head), {}, 0
  for i = 1, #all, 2 do
    if all[i] == 'floor' then
      floor = tonumber(all[i + 1])
    elseif string.sub(all[i], 1, 2) == 'p:' and all[i] ~= field then
      local term, position = string.match(all[i + 1], '^(%d+) %d+ (%d+) ')
      found[#found + 1] = { all[i], tonumber(term or 0), tonumber(position or 0) }
    end
  end
  table.sort(found, function(one, other) return one[3] < other[3] end)
  local left = math.min(#found, math.max(math.floor(most / 2) - 1, 0))
  for i = 1, #found - left do
    redis.call('HDEL', head, found[i][1])
    floor = math.max(floor, found[i][2])
  end
  redis.call('HSET', head, 'floor', string.format('%.0f', floor), 'producers', left + 1)
end

