-- Shared code that is put before the text of each script that numbers appends.
--
-- A head has a field p:<producer> for each producer: "<term> <answer>|<previous answer>". A producer numbers the appends
-- of a term 1, 2, 3 …, and its terms only grow. The field `producers` counts these fields, and the count is bounded. The
-- fields of the producers that published longest ago are deleted, and `floor` is the highest term of any deleted field. A
-- producer without a field must use a term above the floor. So a late copy of an append is refused, even if the field of
-- its producer was deleted or has a new term.

-- Return the last answers of a producer's term, or nil if the term begins with this append. If the term is over, return
-- nil and a floor: the next term must be above the floor.
local function answers_of(kept, floor, term)
  if kept then
    if string.sub(kept, 1, #term + 1) == term .. ' ' then return string.sub(kept, #term + 2) end
    local newest = string.match(kept, '^%d+') -- the caller has checked that it is there
    if tonumber(term) <= tonumber(newest) then return nil, newest end
  elseif floor and tonumber(term) <= tonumber(floor) then
    return nil, floor
  end
  return nil
end

-- Count a producer that is new to a head. If there are too many producers, delete those that published longest ago, so
-- that about half remain.
local function count_producer(head, field, most)
  local count = redis.pcall('HINCRBY', head, 'producers', 1)
  if type(count) == 'number' and count > 0 and count <= most then return end -- else there are too many, or it is damaged
  local all, found, floor = redis.call('HGETALL', head), {}, 0
  for i = 1, #all, 2 do
    if all[i] == 'floor' then
      floor = stored(all[i + 1], 18) or 0
    elseif string.sub(all[i], 1, 2) == 'p:' and all[i] ~= field then
      local term, position = string.match(all[i + 1], '^(%d+) %d+ (%d+) ')
      found[#found + 1] = { all[i], stored(term, 18) or 0, stored(position) or 0 }
    end
  end
  table.sort(found, function(one, other) return one[3] < other[3] end)
  local left = #found -- those that stay, in addition to this one
  if left >= most then left = math.max(math.floor(most / 2) - 1, 0) end
  for i = 1, #found - left do
    redis.call('HDEL', head, found[i][1])
    floor = math.max(floor, found[i][2])
  end
  redis.call('HSET', head, 'floor', string.format('%.0f', floor), 'producers', left + 1)
end

