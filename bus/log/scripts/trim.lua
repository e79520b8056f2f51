-- One step of a trim: remove the oldest entries of a session from both lanes. After each step the session is consistent.
--
-- KEYS  1 head hash · 2 LLM stream · 3 extension stream · 4 checkpoints hash · 5 index stream · 6 sessions hash ·
--       7 order of the session's agent, a sorted set · 8 woken hash · 9 groups hash
-- ARGV  1 session id · 2 first position to keep · 3 "trim", "force", or "look", which changes nothing · 4 first position
--       for "look" · 5 a token of this step, never used before · 6 entry version · 7 a token for an incarnation, never
--       used before · 8 and 9 MAXLEN arguments of the index · 10 most incarnations that a head lists · 11 most positions
--       and 12 about the most bytes that one step removes · 13 positions to read at once · 14 CRC with which the checksum
--       of the note starts · 15 the session's agent, or "" · 16 more holders, as a
--       JSON object of their positions · 17 forks that "force" may take entries from, as the keys of a JSON object; ""
--       means any · then the names of the holders in earlier notes of this trim
--
-- Returns JSON: {outcome "erased" | "agent" | "forged" | "held" | "done", keep (first position to keep, at most the position
-- of the next entry), trimmed (highest trimmed position), entries, bytes, holders {name: position}, agent}. "held",
-- "forged" and "agent" mean that nothing was changed. With "forged", a foreign client has written above the session's
-- position. With "agent", the session belongs to this other agent. A repeat of the last step returns the same.
--
-- Holders still need entries below the first position to keep. Holders are the checkpoints, except `p:lanebus.…`, and
-- those of ARGV 16, unless the archive has the entries, and "g:<group>" for each consumer group with unfinished work in this session. With "force" the entries are
-- removed nevertheless, unless a fork is not in ARGV 17, and the same step appends a note with the holders to the extension lane.

local STEP, STEP_BYTES, CHUNK = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
local LANES, FIELDS = { 2, 3 }, { [2] = 'trimmed_llm', [3] = 'trimmed_ext' }
local call, match, sub, min, max = redis.call, string.match, string.sub, math.min, math.max
local session, keep, mode = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local now_trimmed, position, bytes, state, archived, lost, last_step, agent, last_in, missing
do
  local names = { 'trimmed', 'position', 'bytes', 'state', 'archived', FIELDS[2], FIELDS[3], 'trim', 'fork', 'agent' }
  local head = call('HMGET', KEYS[1], 'last_llm', 'last_ext', 'lost')
  local llm, extension = match(head[3] or '', '^(%d+) (%d+)$')
  last_in = { [2] = stored(head[1]) or 0, [3] = stored(head[2]) or 0 }
  missing = { [2] = stored(llm) or 0, [3] = stored(extension) or 0 }
  head = call('HMGET', KEYS[1], unpack(names))
  local numbers = { 'trimmed', 'position', 'bytes', 'archived', FIELDS[2], FIELDS[3] }
  local damage = damage_in(KEYS[1], numbers, { head[1], head[2], head[3], head[5], head[6], head[7] })
  if not damage and head[10] and not is_agent(head[10]) then damage = damaged(KEYS[1], 'agent') end
  if damage and head[4] ~= 'erased' then return damage end
  now_trimmed, position, bytes = tonumber(head[1] or 0), tonumber(head[2] or 0), tonumber(head[3] or 0)
  state, archived, last_step, agent = head[4], tonumber(head[5] or 0), head[8], head[10] or ''
  lost = { [2] = tonumber(head[6] or now_trimmed), [3] = tonumber(head[7] or now_trimmed) }
  keep = min(keep, position + 1)
  -- The entries that a fork shares are in its parent. They are not removed, so `trimmed` must not cover them.
  if keep - 1 <= (stored(match(head[9] or '', '^%d+')) or 0) then keep = now_trimmed + 1 end
end

do -- a repeat of the last step
  local token, numbers = match(last_step or '', '^(%S+) (.*)$')
  last_step = nil
  if token == ARGV[5] then
    local kept, gone, entries, size = match(numbers, '^(%d+) (%d+) (%d+) (%d+)$')
    if not kept then return damaged(KEYS[1], 'trim') end
    keep, last_step = tonumber(kept), { tonumber(entries), tonumber(size) }
    now_trimmed = tonumber(gone)
  end
end

local function answer(outcome, entries, size, holders)
  return cjson.encode({
    outcome = outcome, keep = keep, trimmed = now_trimmed, entries = entries or 0, bytes = size or 0, holders = holders or {},
    agent = agent,
  })
end

if state == 'erased' then return answer('erased') end
if agent ~= ARGV[15] then return answer('agent') end

local function is_after(id, other)
  local ms, n = match(id, '^(%d+)-(%d+)$')
  local other_ms, other_n = match(other, '^(%d+)-(%d+)$')
  if ms == other_ms then return tonumber(n) > tonumber(other_n) end
  return tonumber(ms) > tonumber(other_ms)
end

local function named(list)
  local found = {}
  for i = 1, #list, 2 do found[list[i]] = list[i + 1] end
  return found
end

-- Return the position up to which a group has handled this session; nil if the group has no work in the session. A group
-- has no work in a session that has not woken a worker since the group started.
local function handled_by(group, place, score, woken)
  if score <= (tonumber(match(place, '%d+$')) or 0) then return nil end
  local done = stored(call('HGET', KEYS[1], 'g:' .. group)) or 0
  if done < woken then return done end
end

-- Return the CRC-32 that zlib computes; see codec.py. This is slow, but notes are short and rare.
local function crc32(text, from)
  local crc = bit.bnot(from)
  for i = 1, #text do
    crc = bit.bxor(crc, string.byte(text, i))
    for _ = 1, 8 do crc = bit.bxor(bit.rshift(crc, 1), bit.band(0xEDB88320, -bit.band(crc, 1))) end
  end
  return bit.bnot(crc) % 4294967296
end

local holders, is_held, known = {}, false, ARGV[17] ~= '' and cjson.decode(ARGV[17])
if last_step or keep - 1 > now_trimmed then -- no holder needs what is gone
  local function hold(name, at)
    holders[string.gsub(name, '[^\32-\126]', function(c) return string.format('%%%02X', string.byte(c)) end)] = at
    if mode == 'trim' or (known and sub(name, 1, 2) == 'f:' and not known[name]) then is_held = true end
  end
  local checkpoints = call('HGETALL', KEYS[4])
  for i = 1, #checkpoints, 2 do
    local at = tonumber(match(checkpoints[i + 1], '^%d+')) or 0
    local is_cache = sub(checkpoints[i], 1, 10) == 'p:lanebus.'
    if not is_cache and max(at, archived) < keep - 1 then hold(checkpoints[i], at) end
  end
  for name, at in pairs(cjson.decode(ARGV[16])) do
    if max(at, archived) < keep - 1 then hold(name, at) end
  end
  local score = tonumber(call('ZSCORE', KEYS[7], session) or nil)
  if score then
    local woken = tonumber(match(call('HGET', KEYS[8], session) or '', '^%d+')) or 0
    local groups = call('HGETALL', KEYS[9])
    for i = 1, #groups, 2 do
      local served, group = match(groups[i], '^([^:]+):([^:]+)$')
      if served == agent then
        local at = handled_by(group, groups[i + 1], score, woken)
        if at and at < keep - 1 then hold('g:' .. group, at) end
      end
    end
  end
end
if last_step then return answer('done', last_step[1], last_step[2], holders) end
if is_held then return answer('held', 0, 0, holders) end

-- Choose the positions of this step: a bounded number of positions and bytes. Ranges without entries, such as below a
-- fork's own entries, are skipped.
local from = mode == 'look' and max(tonumber(ARGV[4]), now_trimmed + 1) or now_trimmed + 1
local oldest = keep
for _, lane in ipairs(LANES) do
  local entry = call('XRANGE', KEYS[lane], from .. '-0', '+', 'COUNT', 1)[1]
  if entry then oldest = min(oldest, tonumber(match(entry[1], '^%d+'))) end
end
local at, last, entries, size = max(from, oldest), min(keep - 1, max(from, oldest) + STEP - 1), 0, 0
local last_gone, last_header = 0, ''
while at <= last and size < STEP_BYTES do
  local to = min(at + CHUNK - 1, last)
  for _, lane in ipairs(LANES) do
    for _, entry in ipairs(call('XRANGE', KEYS[lane], at .. '-0', to .. '-18446744073709551615')) do
      if match(entry[1], '-0$') then -- entries with other ids are foreign, and were never counted
        entries = entries + 1
        if entry[2][3] == 'm' and entry[2][4] then size = size + #entry[2][4] end
        local gone = tonumber(match(entry[1], '^%d+'))
        lost[lane] = gone
        if gone > last_gone then last_gone, last_header = gone, entry[2][2] or '' end
      end
    end
  end
  at = to + 1
end
if at <= from then return answer('done', 0, 0, holders) end
if mode == 'look' then
  now_trimmed = at - 1
  return answer('done', entries, size, holders)
end

local untold, must_note = {}, false
for name, place in pairs(holders) do untold[name], must_note = place, true end
if must_note then
  for i = 18, #ARGV do untold[ARGV[i]] = nil end
  must_note = next(untold) ~= nil
end
if must_note and call('EXISTS', KEYS[3]) == 1 then
  local highest = named(call('XINFO', 'STREAM', KEYS[3]))['last-generated-id']
  if is_after(highest, position .. '-0') then return answer('forged') end
end
call('HGET', KEYS[6], ':bytes') -- ends the script before its first write if the key has a wrong type

now_trimmed = at - 1
for _, lane in ipairs(LANES) do call('XTRIM', KEYS[lane], 'MINID', '=', at .. '-0') end
-- Entries that were missing before this trim count as trimmed, so that readers begin after them, or read the archive.
for _, lane in ipairs(LANES) do
  for _, at_most in ipairs({ last_in[lane], missing[lane] }) do
    if at_most <= now_trimmed then lost[lane] = max(lost[lane], at_most) end
  end
end
local left = max(bytes - size, 0)
local change = left - bytes
-- The token and the proof of the last trimmed entry are kept, to check cursors just before the first kept entry.
local trimmed_by = last_gone == now_trimmed and match(last_header, '^%S+ %S+ %S+ (%S+) %S+$') or ''
local proof = trimmed_by ~= '' and proof_in(last_header) or ''
call('HSET', KEYS[1], 'trimmed', now_trimmed, 'trimmed_by', trimmed_by, 'trimmed_proof', proof)
call('HSET', KEYS[1], FIELDS[2], lost[2], FIELDS[3], lost[3])

if must_note then
  local clock = call('TIME')
  local now = clock[1] .. string.format('%03d', math.floor(clock[2] / 1000))
  local data = cjson.encode({ before = keep, forced = true, passed = untold })
  local note = '{"role":"extension","kind":"session.trimmed","data":' .. data .. '}'
  -- As in publish.lua, the first append after another server process took over begins an incarnation.
  local run = match(call('INFO', 'replication'), 'master_replid:(%x%x%x%x%x%x%x%x%x%x%x%x)') or ''
  local past = call('HMGET', KEYS[1], 'run', 'incarnation', 'incarnations', 'ends')
  local token = past[2] or ''
  if past[1] ~= run then
    token = position .. '_' .. ARGV[7]
    local tokens = {}
    for each in string.gmatch(past[3] or '', '%S+') do tokens[#tokens + 1] = each end
    tokens[#tokens + 1] = token
    local all = table.concat(tokens, ' ', max(#tokens - tonumber(ARGV[10]) + 1, 1))
    call('HSET', KEYS[1], 'run', run, 'incarnation', token, 'incarnations', all)
  end
  position = position + 1
  local checksum = string.format('%.0f', crc32(note, tonumber(ARGV[14])))
  local header = ARGV[6] .. ' ' .. now .. ' log ' .. token .. ' ' .. checksum
  if last_in[3] > lost[3] and call('EXISTS', KEYS[3]) == 0 then -- the stream was lost; as begin_lane in publish.lua
    call('HSET', KEYS[1], 'lost', missing[2] .. ' ' .. last_in[3])
  end
  call('XADD', KEYS[3], position .. '-0', 'h', header, 'm', note)
  local notice = add_hint(KEYS[5], 'MAXLEN', ARGV[8], ARGV[9], '*', 's', session, 'z', position .. '')
  local updated = type(notice) == 'string' and match(notice, '^%d+') or now -- ahead of the clock if that was set back
  if tonumber(updated) <= tonumber(now) + 1000 then updated = now end
  left, change = left + #note, change + #note
  local ends = with_end(past[4], position, checksum, now)
  call('HSET', KEYS[1], 'position', position, 'last_ext', position, 'updated', updated, 'ends', ends)
end
call('HSET', KEYS[1], 'bytes', left, 'trim', table.concat({ ARGV[5], keep, now_trimmed, entries, size }, ' '))
count_bytes(KEYS[6], change, left)
return answer('done', entries, size, holders)
