-- Append the publishes of one producer to sessions. The append to each session is atomic; a repeat adds nothing.
--
-- KEYS  for each session
--       index stream, sessions hash, head hash, caller keys hash, LLM stream, extension stream; and if one of its
--       publishes wakes a worker: order of its agent (a sorted set), woken hash, wake-ups stream; then the order of the
--       new agent for each publish that hands the session over
-- ARGV  1 producer · 2 entry version · 3 and 4 MAXLEN arguments of the index · 5 a token never used before ·
--       6 most bytes of a session, or "" · 7 additional bytes for commands · 8 and 9 MAXLEN arguments of wake-ups ·
--       10 most incarnations that a head lists · 11 most producers that a head keeps · then for each session
--       session id · the agent that the session is believed to belong to · producer's term · number of this append in
--         the term · count of publishes, negative if one of them wakes a worker · then for each publish its plan ·
--         then for each message its checksum · its JSON
--       A plan has one letter for the lane of each message, "l" or "e". A "w" before these letters wakes a worker. A "c"
--       as the first letter marks a command. With conditions, a plan is a JSON object {lanes, key, expected, incarnation,
--       proof, epoch, state, agent, assign}; expected is the session's last position, incarnation and proof are those of
--       its last entry, as the caller saw it, each left out if unknown; state is the session's new state, "closed" or
--       "open"; agent is the one that the session must belong to; assign hands the session over to another agent, and
--       always wakes.
--
-- Returns one answer for each session:
--   "<number> <position before> <incarnation>@<time of the append, ms> <outcomes>"; without "@<time>" for a repeat
--   "gap <last number> <position>"   earlier appends of the producer are missing: the log lost its end
--   "agent <name>"                   the session belongs to this agent, not to the believed one; the number is not used
--   "forged <lane> <position>"       a foreign client has written into a stream; later sessions were not processed
--   "refused <error>"                the server refused a write, or a key has a wrong type
--   "damaged <key>[, <field>]"       a stored value that the append needs is damaged; nothing was written
--   "stale <floor> <position>"       the producer's term is over; its next term must be above the floor (producers.lua)
-- Outcomes are empty if every publish was appended. Otherwise there is one word for each publish:
--   a appended · d<first>+<count>+<incarnation>[+<proof>] duplicate of an earlier key · c<position> conflict ·
--   r<position> the log lost the expected entry · f<epoch> fenced · x closed · o<bytes> over the limit, with the size of
--   the session · z erased · g<agent> belongs to another agent
--
-- The first append after another server process took over begins an incarnation. The header of each entry has the token
-- of its incarnation: "<position before the incarnation's first entry>_<token never used before>". A cursor is valid if
-- the entry at its position has the cursor's token. The head lists the newest tokens, so that most cursors are checked
-- without reading an entry. A server process is known by its replication id, which changes with every start, and when a
-- replica takes over.
--
-- A log may also go back without another server process, as when its keys are restored from a dump. So each entry has a
-- proof, see codec.py. The head lists the proofs of the ends of the last appends, so that a reader that is behind by a
-- few appends is checked without reading an entry.
--
-- The first append of a session gives it the believed agent. The believed agent is checked on every append, also on one
-- that wakes no worker: of two appends in flight with a wrong name, both are answered "agent", and neither "gap".
--
-- An append is either refused before its first write, or applied completely. The last two answers of a producer are kept,
-- because the producer may have two appends to a session in flight and lose both answers. To save memory, an entry has
-- only two fields: the header, and the message.

-- Locals, because a global look-up costs as much as the rest of a line.
local KEYS, ARGV, type, tonumber = KEYS, ARGV, type, tonumber
local call, pcall_, concat, byte, sub, match = redis.call, redis.pcall, table.concat, string.byte, string.sub, string.match
local producer, index_trim, index_length, fresh = ARGV[1], ARGV[3], ARGV[4], ARGV[5]
local limit, reserve, kept_incarnations, kept_producers = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[10], tonumber(ARGV[11])
local info = call('INFO', 'replication')
local _, before_run = string.find(info, 'master_replid:', 1, true) -- plain text: a pattern costs as much as an append
local run = before_run and sub(info, before_run + 1, before_run + 12) or ''
local clock = call('TIME')
local now = clock[1] .. string.format('%03d', math.floor(clock[2] / 1000))
local entry_header = ARGV[2] .. ' ' .. now .. ' ' .. producer .. ' '
local field = 'p:' .. producer
local replies, arg, key = {}, 12, 1

-- Return the proof of the entry at a position of the session's own streams; nil if the entry is gone or foreign.
local function proof_at(key, position)
  local place = position .. '-0'
  local entry = call('XRANGE', KEYS[key + 4], place, place)[1] or call('XRANGE', KEYS[key + 5], place, place)[1]
  return entry and proof_in(entry[2][2])
end

-- Return whether the last entry is not the one that the caller of a publish saw. If it is gone, its incarnation decides.
local function is_another(plan, incarnation, ends, key)
  if plan.incarnation ~= incarnation then return true end
  local proof = plan.proof and (proof_among(ends, plan.expected) or proof_at(key, plan.expected))
  return proof and proof ~= plan.proof
end

local function duplicate(seen, key)
  local first, count = match(seen, '^(%d+)%+(%d+)')
  local proof = first and proof_at(key, string.format('%d', first + count - 1))
  return 'd' .. seen .. (proof and '+' .. proof or '')
end

-- The key is checked first, because a repeat of an earlier publish is a duplicate whatever the session's present state.
-- The fourth value is set if a key was stored for a publish that appends nothing.
local function judge(plan, state, epoch, position, key, agent, incarnation, ends)
  if plan and plan.key then
    local seen = pcall_('HGET', KEYS[key + 3], plan.key)
    if type(seen) == 'table' then return nil, seen.err end
    if seen and not match(seen, '^%d+%+%d+%+[%w_-]*$') then return nil, nil, 'keys' end
    if seen then return duplicate(seen, key) end
  end
  -- A repeat of the last handover; position 0 if the session belonged to the agent from its first message on.
  -- Its key is kept too, or the same request would take the session back after another handover.
  if plan and plan.assign == agent then
    local assigned = call('HGET', KEYS[key + 2], 'assigned') or '0+1+'
    if not match(assigned, '^%d+%+1%+[%w_-]*$') then return nil, nil, 'head, assigned' end
    local kept = plan.key and pcall_('HSET', KEYS[key + 3], plan.key, assigned)
    if type(kept) == 'table' then return nil, kept.err end
    return duplicate(assigned, key), nil, nil, kept
  end
  if state == 'closed' and not (plan and plan.state == 'open') then return 'x' end
  if not plan then return nil end
  if plan.agent and plan.agent ~= agent then return 'g' .. agent end
  if plan.epoch and plan.epoch ~= tonumber(epoch) then return 'f' .. epoch end
  if not plan.expected then return nil end
  if plan.expected > position and plan.incarnation then return 'r' .. position end
  if plan.expected ~= position then return 'c' .. position end
  if plan.incarnation and is_another(plan, incarnation, ends, key) then return 'r' .. position end
  return nil
end

local function over_limit(bytes, first, count, is_control)
  local size = bytes
  for at = first + 1, first + 2 * count - 1, 2 do size = size + #ARGV[at] end
  if size > limit + (is_control and reserve or 0) then return 'o' .. bytes end
  return nil
end

local function begin_incarnation(head, token)
  local tokens = {}
  for past in string.gmatch(call('HGET', head, 'incarnations') or '', '%S+') do tokens[#tokens + 1] = past end
  tokens[#tokens + 1] = token
  local all = concat(tokens, ' ', math.max(#tokens - tonumber(kept_incarnations) + 1, 1))
  call('HSET', head, 'run', run, 'incarnation', token, 'incarnations', all)
end

-- Return the field of a head that an append cannot use as it is stored, or nil. Hot path: one pattern covers three numbers.
local function damage_of(head, base_text, epoch, kept_term, last)
  local bytes = head[2] or '0'
  local numbers = base_text .. ' ' .. bytes .. ' ' .. epoch
  if #numbers > 32 or not string.find(numbers, '^%d+ %d+ %d+$') then
    if not stored(base_text) then return 'position' end
    if not stored(bytes) then return 'bytes' end
    if not stored(epoch) then return 'epoch' end
  end
  if head[5] and not (stored(kept_term, 18) and stored(last)) then return field end
  if head[7] and head[7] ~= '' then
    -- A first append begins an incarnation, then sets position and bytes. A torn file has the incarnation alone.
    if base_text == '0' and head[2] then return 'position' end
    if head[6] == run and string.find(head[7], '[^%w_-]') then return 'incarnation' end
  end
  return nil
end

-- Append a lane's first entry, which creates its stream. If the lane had entries that no trim removed, another client has
-- deleted the stream. The head then tells it to readers: without a stream, they could not see that entries are missing.
local function begin_lane(head, stream, lane, id, header, json)
  local known = call('HMGET', head, 'last_' .. lane, 'trimmed_' .. lane, 'trimmed', 'lost')
  local added = pcall_('XADD', stream, id, 'h', header, 'm', json)
  local last = stored(known[1]) or 0
  if type(added) == 'string' and last > (stored(known[2] or known[3]) or 0) then
    local llm, extension = match(known[4] or '', '^(%d+) (%d+)$')
    call('HSET', head, 'lost', lane == 'llm' and last .. ' ' .. (extension or '0') or (llm or '0') .. ' ' .. last)
  end
  return added
end

-- A stream keeps its highest id even if the entry with that id is deleted. If the server refuses to lower the id, the next
-- append finds the id too high, and quarantine.lua repairs the stream.
local function take_back(key, in_llm, in_extension, new_keys, first, last)
  for _, stream in pairs({ in_llm and KEYS[key + 4] or nil, in_extension and KEYS[key + 5] or nil }) do
    for position = first, last do call('XDEL', stream, position .. '-0') end
    pcall_('XSETID', stream, (first - 1) .. '-0', 'ENTRIESADDED', call('XLEN', stream), 'MAXDELETEDID', '0-0')
  end
  for _, name in ipairs(new_keys or {}) do call('HDEL', KEYS[key + 3], name) end
end

local function failed(answer)
  return type(answer) == 'table' and answer.err
end

-- Record the session's agent in the sessions hash, and count the sessions of its old and its new agent.
local function address(key, session, old, agent, now)
  local created = match(call('HGET', KEYS[key + 1], session) or '', '^%d+') or now
  call('HSET', KEYS[key + 1], session, created .. ' ' .. agent)
  count_agents(KEYS[key + 1], old, agent)
end

-- Take the session from its old agent. The higher epoch ends the lease of the old agent's worker.
local function hand_over(head, old_order, order, session, epoch, assigned)
  if old_order ~= order then pcall_('ZREM', old_order, session) end
  call('HSET', head, 'assigned', assigned, 'epoch', epoch, 'owner', '', 'lease_until', 0)
  call('HDEL', head, 'wanted', 'rests_until', 'rest_ms')
end

local words = #ARGV
while arg <= words do
  local session, believed, term = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2]
  local number, count = tonumber(ARGV[arg + 3]), tonumber(ARGV[arg + 4])
  local may_wake = count < 0
  if may_wake then count = -count end
  arg = arg + 5
  local head = pcall_('HMGET', KEYS[key + 2], 'position', 'bytes', 'state', 'epoch', field, 'run', 'incarnation', 'agent', 'ends')
  -- Numbers are also kept as text, because converting a number costs more than a look-up.
  local base_text, number_text = head[1] or '0', ARGV[arg - 2]
  local base, bytes_before, state, epoch = tonumber(base_text), tonumber(head[2] or 0), head[3], head[4] or '0'
  local fault, incarnation, bytes = head.err, head[7] or '', bytes_before
  local reply, floor, kept_term, answer, last
  if head[5] then kept_term, answer, last = match(head[5], '^(%d+) ((%d+)[^|]*)') end
  local damage = not fault and damage_of(head, base_text, epoch, kept_term, last)
  if kept_term ~= term then -- this append begins the term, if the term is above the floor
    answer, last = nil, 0
    if not fault and not damage then
      floor = not head[5] and call('HGET', KEYS[key + 2], 'floor')
      if floor and not stored(floor, 18) then damage = 'floor' else _, floor = answers_of(head[5], floor, term) end
    end
  end
  last = tonumber(last)
  if fault then
    reply = 'refused ' .. fault
  elseif damage then
    reply = 'damaged head, ' .. damage
  elseif state == 'erased' then
    reply = number_text .. ' 0  ' .. string.rep('z ', count - 1) .. 'z'
  elseif floor then
    reply = 'stale ' .. floor .. ' ' .. base
  elseif number <= last then
    local answers = '|' .. answers_of(head[5], nil, term) .. '|'
    reply = match(answers, '|(' .. number_text .. ' [^|]*)|') or 'gap ' .. last .. ' ' .. base
    if byte(reply, 1) ~= 103 and not match(reply, '^%d+ %d+ [%w_-]* ') then reply = 'damaged head, ' .. field end
  elseif head[8] and head[8] ~= believed then
    reply = is_agent(head[8]) and 'agent ' .. head[8] or 'damaged head, agent'
  elseif number > last + 1 then
    reply = 'gap ' .. last .. ' ' .. base
  end

  local position, position_text, outcomes = base, base_text, nil -- outcomes: nil while every publish was appended
  local in_llm, in_extension, new_keys, woken, new_state, checksum -- in_…: the last new position in the lane
  local agent, order, assigned, assigns = believed, KEYS[key + 6], nil, 0
  local begins = head[6] ~= run
  local token, updated = begins and base_text .. '_' .. fresh or incarnation, now
  for p = 1, count do
    local lanes, plan = ARGV[arg], nil
    arg = arg + 1
    if byte(lanes, 1) == 123 then
      plan = cjson.decode(lanes)
      lanes = plan.lanes
    end
    if plan and plan.assign then assigns = assigns + 1 end
    local is_control = byte(lanes, 1) == 99
    if is_control then lanes = sub(lanes, 2) end
    local wakes = byte(lanes, 1) == 119
    if wakes then lanes = sub(lanes, 2) end
    local length = #lanes
    if not reply then
      local verdict, kept
      damage = nil
      if plan or state then
        verdict, fault, damage, kept = judge(plan, state, epoch, position, key, agent, incarnation, head[9])
        if kept then
          new_keys = new_keys or {}
          new_keys[#new_keys + 1] = plan.key
        end
      end
      if limit and not verdict and not fault and not damage then verdict = over_limit(bytes, arg, length, is_control) end
      if fault then
        reply = 'refused ' .. fault
      elseif damage then
        reply = 'damaged ' .. damage
        fault = reply -- takes back what this append has written
      elseif verdict then
        if not outcomes then
          outcomes = {}
          for q = 1, p - 1 do outcomes[q] = 'a' end
        end
        outcomes[p] = verdict
      else
        if outcomes then outcomes[p] = 'a' end
        for m = 1, length do
          local is_llm, json = byte(lanes, m) == 108, ARGV[arg + 2 * m - 1]
          local stream = KEYS[key + (is_llm and 4 or 5)]
          position = position + 1
          position_text = position .. ''
          checksum = ARGV[arg + 2 * m - 2]
          local header = entry_header .. token .. ' ' .. checksum
          local id = position_text .. '-0'
          local added = pcall_('XADD', stream, 'NOMKSTREAM', id, 'h', header, 'm', json)
          if not added then added = begin_lane(KEYS[key + 2], stream, is_llm and 'llm' or 'ext', id, header, json) end
          if type(added) == 'table' then
            fault = added.err
            if string.find(fault, 'equal or smaller', 1, true) or string.find(fault, 'exhausted', 1, true) then
              take_back(key, in_llm, in_extension, new_keys, base + 1, position - 1)
              replies[#replies + 1] = 'forged ' .. sub(lanes, m, m) .. ' ' .. position
              return replies
            end
            reply = 'refused ' .. fault
            break
          end
          if is_llm then in_llm = position_text else in_extension = position_text end
          bytes = bytes + #json
        end
        if plan and plan.key and not reply then
          call('HSET', KEYS[key + 3], plan.key, (position - length + 1) .. '+' .. length .. '+' .. token)
          new_keys = new_keys or {}
          new_keys[#new_keys + 1] = plan.key
        end
        if plan and plan.state then
          new_state = plan.state
          state = new_state == 'closed' and new_state
        end
        if wakes then woken = position_text end
        if plan and plan.assign then
          agent, order = plan.assign, KEYS[key + 8 + assigns]
          assigned, epoch = position_text .. '+1+' .. token, string.format('%d', epoch + 1)
        end
      end
    end
    arg = arg + 2 * length
  end

  if not reply and position > base then
    -- Shared keys are written before the head, because a shared key of a wrong type refuses the append.
    local notice = add_hint(KEYS[key], 'MAXLEN', index_trim, index_length, '*', 's', session, 'z', position_text)
    fault = failed(notice)
      or woken and wake(order, KEYS[key + 7], KEYS[key + 8], run, ARGV[8], ARGV[9], session, woken, agent, now)
      or count_bytes(KEYS[key + 1], bytes - bytes_before, bytes)
    if not fault and agent ~= head[8] then address(key, session, head[8], agent, now) end
    if fault then reply = 'refused ' .. fault end
    if not fault then updated = time_behind(now, notice) or now end
  end
  if not reply then
    if begins and position > base then
      incarnation = token
      begin_incarnation(KEYS[key + 2], token)
    end
    reply = number_text .. ' ' .. base_text .. ' ' .. incarnation .. ' ' .. (outcomes and concat(outcomes, ' ') or '')
    local answers = term .. ' ' .. (answer and reply .. '|' .. answer or reply)
    if position == base then
      call('HSET', KEYS[key + 2], field, answers)
    else
      if base == 0 then call('HSETNX', KEYS[key + 2], 'created', now) end
      if agent ~= head[8] then call('HSET', KEYS[key + 2], 'agent', agent) end
      if assigned then hand_over(KEYS[key + 2], KEYS[key + 6], order, session, epoch, assigned) end
      local last_in, ends = in_llm and 'last_llm' or 'last_ext', with_end(head[9], position_text, checksum, now)
      call('HSET', KEYS[key + 2], 'position', position_text, 'bytes', bytes, 'updated', updated, field, answers,
        last_in, in_llm or in_extension, 'ends', ends)
      if in_llm and in_extension then call('HSET', KEYS[key + 2], 'last_ext', in_extension) end
      if new_state == 'closed' then
        call('HSET', KEYS[key + 2], 'state', new_state)
      elseif new_state then
        call('HDEL', KEYS[key + 2], 'state')
      end
    end
    if not head[5] then count_producer(KEYS[key + 2], field, kept_producers) end
    -- To save memory, the time is not in the kept answer: settle.lua reads it from the entries.
    reply = number_text .. ' ' .. base_text .. ' ' .. incarnation .. '@' .. now .. ' ' .. (outcomes and concat(outcomes, ' ') or '')
  elseif fault then
    take_back(key, in_llm, in_extension, new_keys, base + 1, position)
  end
  replies[#replies + 1] = reply
  key = key + (may_wake and 9 or 6) + assigns
end
return replies
