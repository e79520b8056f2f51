-- Shared code that is put before the text of scripts that meet stored values which a foreign client may have damaged.

-- Return a stored number; nil if it is missing or damaged. A script counts exactly up to 15 digits.
local function stored(text, digits)
  if text and #text <= (digits or 15) and string.find(text, '^%d+$') then return tonumber(text) end
  return nil
end

-- Return whether a stored name of an agent is one that a bus accepts.
local function is_agent(name) return #name <= 64 and string.find(name, '^[%w_.-]+$') ~= nil end

-- Return the error reply for a damaged field of a session's head. bus/servers/calls.py raises it as SessionDamaged.
local function damaged(head, field)
  return { err = 'DAMAGED ' .. (string.match(head, ':s:([%w_-]+):head$') or '?') .. ' head, ' .. field }
end

-- Return the error reply for the first of some fields of a head that exists and is no number; nil if there is none.
-- `values` are the values of the fields `names`, in the same order.
local function damage_in(head, names, values)
  for i, name in ipairs(names) do
    if values[i] and not stored(values[i]) then return damaged(head, name) end
  end
  return nil
end

-- Add a hint to a stream of hints. A foreign client may have written an id that leaves no later ids, or one that is no
-- time: the stream then begins anew, as hints may be lost. Return the id, or a table with the error of a refused write.
local function add_hint(stream, ...)
  local id = redis.pcall('XADD', stream, ...)
  local is_used_up
  if type(id) == 'table' then
    is_used_up = string.find(id.err, 'exhausted', 1, true)
  else
    is_used_up = string.find(id, '-', 1, true) > 15
  end
  if not is_used_up then return id end
  redis.call('DEL', stream)
  return redis.pcall('XADD', stream, ...)
end

-- Change the count of a bucket's bytes. A damaged count begins again with `bytes`. Return the error of a refused write.
local function count_bytes(sessions, change, bytes)
  local done = redis.pcall('HINCRBY', sessions, ':bytes', string.format('%.0f', change))
  if type(done) ~= 'table' then return nil end
  if string.find(done.err, 'not an integer', 1, true) or string.find(done.err, 'overflow', 1, true) then
    redis.call('HSET', sessions, ':bytes', string.format('%.0f', bytes))
    return nil
  end
  return done.err
end

