-- Shared code of the scripts that give a session to an agent, or take it away; it precedes their own text.
--
-- The field `:agents` of a bucket's sessions hash counts the sessions of each agent: a JSON object.

local function count_agents(sessions, old, new)
  local is_json, counts = pcall(cjson.decode, redis.call('HGET', sessions, ':agents') or '{}')
  if not is_json or type(counts) ~= 'table' then counts = {} end
  for name, count in pairs(counts) do -- a foreign client may have damaged some counts, or all of them
    if type(name) ~= 'string' or type(count) ~= 'number' or not (count > 0 and count < 1e15) then counts[name] = nil end
  end
  if old then counts[old] = (tonumber(counts[old]) or 1) - 1 end
  if old and counts[old] <= 0 then counts[old] = nil end
  if new then counts[new] = (tonumber(counts[new]) or 0) + 1 end
  redis.call('HSET', sessions, ':agents', next(counts) and cjson.encode(counts) or '{}')
end

