-- Append the publishes of one producer to the sessions of one bucket. Atomic; a repeat adds nothing.
--
-- KEYS  1 index stream · 2 sessions hash · then for each session
--       head hash, producers hash, caller keys hash, LLM stream, extension stream
-- ARGV  1 producer · 2 entry version · 3 index length · then for each session
--       session id · number of this append · count of publishes · then for each publish
--         its plan · then one JSON text for each message
--       A plan is the lanes of its messages, "l" or "e" each, with a "w" before them if it wakes a worker;
--       or, with conditions, a JSON object {lanes, wake, key, expected, epoch}.
--
-- Gives for each session "<number> <position before> <outcomes>", or "gap <last number> <position>", or
-- "forged <lane> <id>" where somebody else has written into a stream.
-- Outcomes: nothing at all if every publish was appended, else one word for each publish: a appended ·
-- d<first>+<count> duplicate of an earlier key · c<position> conflict · f<epoch> fenced · x closed.
--
-- An append is refused before its first write, or applied whole. The last two answers of each producer are kept, so
-- that a producer with two appends on their way can ask again for both.

local call, pcall_, concat, byte, sub = redis.call, redis.pcall, table.concat, string.byte, string.sub
local producer, version, index_length = ARGV[1], ARGV[2], ARGV[3]
local clock = call('TIME')
local now = clock[1] .. string.format('%03d', math.floor(clock[2] / 1000))
local replies, arg, key = {}, 4, 3
local LANE = { [108] = 3, [101] = 4 } -- "l", "e": offset of the lane's stream from the session's first key

local function judge(plan, state, epoch, position, caller_keys)
  if state == 'closed' then return 'x' end
  if not plan then return nil end
  if plan.key then
    local seen = call('HGET', caller_keys, plan.key)
    if seen then return 'd' .. seen end
  end
  if plan.epoch and plan.epoch ~= epoch then return 'f' .. epoch end
  if plan.expected and plan.expected ~= position then return 'c' .. position end
  return nil
end

local function take_back(streams, caller_keys, new_keys, first, last)
  for stream in pairs(streams) do
    for position = first, last do call('XDEL', stream, position .. '-0') end
    call('XSETID', stream, (first - 1) .. '-0', 'ENTRIESADDED', call('XLEN', stream), 'MAXDELETEDID', '0-0')
  end
  for _, name in ipairs(new_keys) do call('HDEL', caller_keys, name) end
end

while arg <= #ARGV do
  local session, number, count = ARGV[arg], tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  arg = arg + 3
  local head_key, producers_key = KEYS[key], KEYS[key + 1]
  local head = call('HMGET', head_key, 'position', 'bytes', 'state', 'epoch')
  local base, bytes = tonumber(head[1] or 0), tonumber(head[2] or 0)
  local state, epoch = head[3], tonumber(head[4] or 0)
  local kept = call('HGET', producers_key, producer)
  local last = kept and tonumber(string.match(kept, '^%d+')) or 0
  local reply

  if number <= last then
    reply = string.match('|' .. kept .. '|', '|(' .. number .. ' [^|]*)|') or 'gap ' .. last .. ' ' .. base
  elseif number > last + 1 then
    reply = 'gap ' .. last .. ' ' .. base
  end

  local position, outcomes, plain = base, {}, true
  local touched, new_keys, woken = {}, {}, ''
  for p = 1, count do
    local plan_text = ARGV[arg]
    arg = arg + 1
    local plan, lanes = nil, plan_text
    if byte(plan_text, 1) == 123 then
      plan = cjson.decode(plan_text)
      lanes = plan.lanes
    end
    local wakes = byte(lanes, 1) == 119
    if wakes then lanes = sub(lanes, 2) end
    local length = #lanes
    if not reply then
      local verdict = judge(plan, state, epoch, position, KEYS[key + 2])
      if verdict then
        outcomes[p], plain = verdict, false
      else
        outcomes[p] = 'a'
        for m = 1, length do
          local body = ARGV[arg + m - 1]
          local stream = KEYS[key + LANE[byte(lanes, m)]]
          position = position + 1
          local added = pcall_('XADD', stream, position .. '-0', 'v', version, 't', now, 'by', producer, 'm', body)
          if type(added) == 'table' and added.err then
            take_back(touched, KEYS[key + 2], new_keys, base + 1, position - 1)
            reply = 'forged ' .. sub(lanes, m, m) .. ' ' .. position
            break
          end
          touched[stream] = true
          bytes = bytes + #body
        end
        if reply then break end
        if plan and plan.key then
          call('HSET', KEYS[key + 2], plan.key, (position - length + 1) .. '+' .. length)
          new_keys[#new_keys + 1] = plan.key
        end
        if wakes then woken = '1' end
      end
    end
    arg = arg + length
  end

  if not reply then
    reply = number .. ' ' .. base .. ' ' .. (plain and '' or concat(outcomes, ' '))
    local previous = kept and string.match(kept, '^[^|]*')
    call('HSET', producers_key, producer, previous and reply .. '|' .. previous or reply)
    if position > base then
      if base == 0 then
        call('HSET', head_key, 'created', now)
        call('HSET', KEYS[2], session, now)
      end
      call('HSET', head_key, 'position', position, 'bytes', bytes, 'updated', now)
      call('XADD', KEYS[1], 'MAXLEN', '~', index_length, '*', 's', session, 'a', base + 1, 'z', position, 'w', woken)
    end
  elseif sub(reply, 1, 6) == 'forged' then
    -- The rest of this session's publishes were not looked at: skip to the next session.
    replies[#replies + 1] = reply
    return replies
  end
  replies[#replies + 1] = reply
  key = key + 5
end
return replies
