-- Assign work of one agent in a bucket to a consumer, or only count it.
--
-- KEYS  1 to 6 see work.lua · then the head hash of each session that a wake-up named
-- ARGV  1 to 4 see work.lua · 5 most sessions to assign; 0 only counts
--       6 "own": only work that is assigned to this consumer but that the consumer does not process; "sweep": also return
--         the consumers with work; else ""
--       7 "now": a new group starts after all present work; else a new group starts with all present work
--       8 number of dead consumers · the names of these consumers, whose work is assigned to this consumer
--       then the owner of leases to take, or "" · duration of a lease, milliseconds
--       then "<tenant>:<number>,…": how many sessions of each tenant the consumer has, in all buckets
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
--
-- New work is shared among tenants. A session's tenant is its id up to the first "-" or "_"; ids without one have the
-- tenant "". If there is more new work than room, the tenant with the fewest assigned sessions is next, and among equals
-- the one that has waited longest. Only the first PAGE sessions are looked at. The others stay behind the mark.

local PAGE = 500
local most, mode, dead_count = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[8])
local dead, in_hand = {}, {}
for i = 9, 8 + dead_count do dead[ARGV[i]] = true end
local after_dead, heads = 9 + dead_count, {}
local owner, lease_ms, tenants = ARGV[after_dead], tonumber(ARGV[after_dead + 1]), ARGV[after_dead + 2]
local named = tonumber(ARGV[after_dead + 3])
for i = 1, named do heads[ARGV[after_dead + 3 + i]] = KEYS[6 + i] end
for i = after_dead + 4 + named, #ARGV do in_hand[ARGV[i]] = true end

local at, began = match(call('HGET', KEYS[4], place) or '', '^(%d+) (%d+)$')
local last = stored(call('HGET', KEYS[2], ':last')) or 0
local first_mark = stored(at)
if not first_mark or first_mark > last then -- the group is new, or the bucket has lost its order numbers
  first_mark = not first_mark and ARGV[7] == 'now' and last or 0
  began = text_of(first_mark)
  call('HSET', KEYS[4], place, began .. ' ' .. began)
end
local here = first_mark
local top = last > 0 and text_of(last) or '(1e15' -- a foreign client wrote the order numbers above

-- If the clock was set back since a retry was scheduled, move all due times back by as much.
if call('EXISTS', KEYS[6]) == 1 then
  local noted = stored(call('HGET', KEYS[4], place .. ':clock')) or 0
  if noted > now then
    local all = call('ZRANGE', KEYS[6], 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
      local due = stored(all[i + 1]) or now -- a damaged time is due at once
      call('ZADD', KEYS[6], text_of(math.max(due - (noted - now), 0)), all[i])
    end
    call('HSET', KEYS[4], place .. ':clock', text_of(now))
  end
end

local given, left = {}, 0
local function give(session, work, is_due)
  if #given >= most then
    left = left + 1
    return false
  end
  local score = order_of(call('ZSCORE', KEYS[1], session))
  local position = match(call('HGET', KEYS[2], session) or '', '^%d+')
  call('ZREM', KEYS[6], session)
  if not score or not stored(position) then -- erased, or handed over, or damaged
    call('HDEL', KEYS[5], session)
    return true
  end
  work = work or { attempt = 0, delay = 0, flags = '', error = '' }
  work.holder, work.order, work.position, work.attempt = consumer, score, position, work.attempt + 1
  write(session, work)
  local epoch = 0
  if heads[session] and owner ~= '' then
    local lease = lease_of(heads[session])
    if lease[4] ~= 'erased' and not lease.damage then epoch = take_lease(heads[session], lease, owner, lease_ms, now, false) end
  end
  given[#given + 1] = { session, position, text_of(score), work.attempt, work.error, is_due and work.flags or '', epoch }
  return true
end

local function tenant_of(session) return match(session, '^(%w*)[-_]') or '' end

-- Return which of the waiting sessions to assign, as a set: `room` of them, fairly shared among their tenants.
local function fair_share(waiting, room)
  local held, queues, order, chosen = {}, {}, {}, {}
  for tenant, number in string.gmatch(tenants, '(%w*):(%d+)') do held[tenant] = tonumber(number) end
  local all = call('HGETALL', KEYS[5])
  for i = 1, #all, 2 do
    local holder, tenant = match(all[i + 1], '^%S*'), tenant_of(all[i])
    if holder ~= '' and holder ~= consumer then held[tenant] = (held[tenant] or 0) + 1 end
  end
  for _, session in ipairs(waiting) do
    local tenant = tenant_of(session)
    if not queues[tenant] then
      queues[tenant] = { next = 1 }
      order[#order + 1] = tenant
    end
    queues[tenant][#queues[tenant] + 1] = session
  end
  local places = {}
  for at_, session in ipairs(waiting) do places[session] = at_ end
  for _ = 1, room do
    local best, fewest, oldest
    for _, tenant in ipairs(order) do
      local session, number = queues[tenant][queues[tenant].next], held[tenant] or 0
      if session and (not best or number < fewest or number == fewest and places[session] < oldest) then
        best, fewest, oldest = tenant, number, places[session]
      end
    end
    chosen[queues[best][queues[best].next]] = true
    queues[best].next, held[best] = queues[best].next + 1, fewest + 1
  end
  return chosen
end

-- Assign sessions after the mark. Return the new mark: up to the first session that was passed over.
local function assign_new(from)
  local page = call('ZRANGEBYSCORE', KEYS[1], '(' .. text_of(from), top, 'WITHSCORES', 'LIMIT', 0, PAGE)
  if #page == 0 then return from end
  local names, works, waiting, is_waiting = {}, {}, {}, {}
  for i = 1, #page, 2 do names[#names + 1] = page[i] end
  local texts = call('HMGET', KEYS[5], unpack(names)) -- hot path: one call, as the page may be long
  for i = 1, #page, 2 do
    local session, score, work = page[i], tonumber(page[i + 1]), parse(texts[(i + 1) / 2])
    works[session] = work
    -- A session with a consumer waits again once it is done. One that was nacked is due later, unless it was woken since.
    if not work or work.holder == '' and work.order < score then
      waiting[#waiting + 1] = session
      is_waiting[session] = true
    end
  end
  local room, chosen = most - #given, is_waiting
  if #waiting > room then chosen = fair_share(waiting, room) end
  local mark_, is_passed = from, false
  for i = 1, #page, 2 do
    local session, work = page[i], works[page[i]]
    if chosen[session] then
      if work and work.flags == 'd' then work = nil end
      give(session, work, false)
    elseif is_waiting[session] then
      is_passed = true
    elseif not is_passed and work.flags == 'd' then
      call('HDEL', KEYS[5], session)
    end
    if not is_passed then mark_ = tonumber(page[i + 1]) end
  end
  return mark_
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
  if #given < most then here = assign_new(here) end
  if here < last then left = left + call('ZCOUNT', KEYS[1], '(' .. text_of(here), top) end
  if here > first_mark then call('HSET', KEYS[4], place, text_of(here) .. ' ' .. began) end
end

local soonest = call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES')[2]
soonest = soonest and tonumber(soonest)
if soonest and not (soonest < 1e15) then soonest = nil end -- a foreign client wrote it
return { left, soonest and math.max(soonest - now, 0) or -1, table.concat(holders, ' '), unpack(given) }
