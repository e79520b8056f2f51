-- Release all work of a consumer that leaves. The work is due at once, and this attempt is not counted.
--
-- KEYS  see work.lua
-- ARGV  see work.lua
--
-- Returns the number of released sessions.

local count = 0
call('XLEN', KEYS[3])
for _, session in ipairs(call('HKEYS', KEYS[5])) do
  local work = read(session)
  if work and work.holder == consumer then
    work.holder, work.attempt = '', math.max(work.attempt - 1, 0)
    write(session, work)
    call('ZADD', KEYS[6], text_of(now), session)
    hint(session, work.position)
    count = count + 1
  end
end
if count > 0 then call('HSET', KEYS[4], place .. ':clock', text_of(now)) end
return count
