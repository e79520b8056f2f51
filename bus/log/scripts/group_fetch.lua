-- Assign work of a bucket to a consumer, or only count it.
--
-- KEYS  1 to 6 see work.lua · then the head hash of each session that a wake-up named
-- ARGV  1 to 4 see work.lua · 5 most sessions to assign; 0 only counts
--       6 "own": only work that is assigned to this consumer but that the consumer does not process; "sweep": also return
--         the consumers with work; else ""
--       7 "now": a new group starts after all present work; else a new group starts with all present work
--       8 number of dead consumers · the names of these consumers, whose work is assigned to this consumer
--       then the owner of leases to take, or "" · duration of a lease, milliseconds
--       then the number of sessions that wake-ups named · these sessions
--       then the sessions that the consumer processes
--
-- Returns { number of sessions left, milliseconds until the next retry is due or -1, with "sweep" the names of consumers
-- with work, separated by spaces; then for each assigned session { session, position, order number, attempt, error, "r"
-- for a retry, epoch } }. This consumer is among the names only if it has work that it does not process.
--
-- If a wake-up named the session and its lease is free, the lease is taken in the same step. Otherwise the epoch is 0.
-- Work is assigned in this order: work of dead consumers, due retries, new work. The script writes only if it assigns
-- work, creates the group, or moves the group's mark.

local PAGE = 500
local most, mode, dead_count = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[8])
local dead, in_hand = {}, {}
for i = 9, 8 + dead_count do dead[ARGV[i]] = true end
local place, heads = 9 + dead_count, {}
local owner, lease_ms, named = ARGV[place], tonumber(ARGV[place + 1]), tonumber(ARGV[place + 2])
for i = 1, named do heads[ARGV[place + 2 + i]] = KEYS[6 + i] end
for i = place + 3 + named, #ARGV do in_hand[ARGV[i]] = true end

local at, began = match(call('HGET', KEYS[4], group) or '', '^(%d+) (%d+)$')
local last = tonumber(call('HGET', KEYS[2], ':last') or 0)
local first_mark = tonumber(at)
if not at or first_mark > last then -- the group is new, or the bucket has lost its order numbers
  first_mark = not at and ARGV[7] == 'now' and last or 0
  began = text_of(first_mark)
  call('HSET', KEYS[4], group, began .. ' ' .. began)
end
local here = first_mark

-- If the clock was set back since a retry was scheduled, move all due times back by as much.
if call('EXISTS', KEYS[6]) == 1 then
  local noted = tonumber(call('HGET', KEYS[4], group .. ':clock') or 0)
  if noted > now then
    local all = call('ZRANGE', KEYS[6], 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do call('ZADD', KEYS[6], text_of(tonumber(all[i + 1]) - (noted - now)), all[i]) end
    call('HSET', KEYS[4], group .. ':clock', text_of(now))
  end
end

local given, left = {}, 0
local function give(session, work, is_due)
  if #given >= most then
    left = left + 1
    return false
  end
  local score = tonumber(call('ZSCORE', KEYS[1], session) or nil)
  local position = match(call('HGET', KEYS[2], session) or '', '^%d+')
  call('ZREM', KEYS[6], session)
  if not score or not position then -- the session was erased
    call('HDEL', KEYS[5], session)
    return true
  end
  work = work or { attempt = 0, delay = 0, flags = '', error = '' }
  work.holder, work.order, work.position, work.attempt = consumer, score, position, work.attempt + 1
  write(session, work)
  local epoch = 0
  if heads[session] and owner ~= '' then
    local lease = lease_of(heads[session])
    if lease[4] ~= 'erased' then epoch = take_lease(heads[session], lease, owner, lease_ms, now, false) end
  end
  given[#given + 1] = { session, position, text_of(score), work.attempt, work.error, is_due and work.flags or '', epoch }
  return true
end

local names, holders = {}, {}
if mode ~= '' or dead_count > 0 then
  local all, found = call('HKEYS', KEYS[5]), {}
  for _, session in ipairs(all) do
    local work = read(session)
    if work and work.holder ~= '' then
      local is_ours = work.holder == consumer
      if not names[work.holder] and not (is_ours and in_hand[session]) then
        names[work.holder] = true
        holders[#holders + 1] = work.holder
      end
      if mode == 'own' and is_ours and not in_hand[session] or dead[work.holder] and not is_ours and mode ~= 'own' then
        found[#found + 1] = { work.order, session, work }
      end
    end
  end
  table.sort(found, function(a, b) return a[1] < b[1] end)
  for _, each in ipairs(found) do give(each[2], each[3], true) end
end

if mode ~= 'own' then
  local count = call('ZCOUNT', KEYS[6], '-inf', now)
  if count > 0 and #given < most then
    for _, session in ipairs(call('ZRANGEBYSCORE', KEYS[6], '-inf', now, 'LIMIT', 0, most - #given)) do
      local work = read(session)
      if work then give(session, work, true) else call('ZREM', KEYS[6], session) end
      count = count - 1
    end
  end
  left = left + count
  local seen = 0
  while #given < most and seen < PAGE do
    local page = call('ZRANGEBYSCORE', KEYS[1], '(' .. text_of(here), '+inf', 'WITHSCORES', 'LIMIT', 0, most - #given)
    for i = 1, #page, 2 do
      local session, score = page[i], tonumber(page[i + 1])
      local work = read(session)
      if work and work.flags == 'd' and work.order >= score then
        call('HDEL', KEYS[5], session)
      elseif not work or work.holder == '' then
        if work and work.flags == 'd' then work = nil end
        give(session, work, false)
      end -- else a consumer has the session: it reads the new entries, or the session waits again after its ack
      here, seen = score, seen + 1
    end
    if #page == 0 then break end
  end
  if here < last then left = left + call('ZCOUNT', KEYS[1], '(' .. text_of(here), '+inf') end
  if here > first_mark then call('HSET', KEYS[4], group, text_of(here) .. ' ' .. began) end
end

local soonest = call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES')[2]
return { left, soonest and math.max(tonumber(soonest) - now, 0) or -1, table.concat(holders, ' '), unpack(given) }
