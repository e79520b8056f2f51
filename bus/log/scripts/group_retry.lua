-- Nack work with a delay. When the work is due, any consumer of the group may get it.
--
-- KEYS  see work.lua
-- ARGV  1 to 4 see work.lua · then for each session
--       its id · attempts so far · milliseconds until the work is due · reason
--
-- Returns the number of nacked sessions. Only work that is assigned to this consumer changes. So a repeat changes nothing,
-- and a consumer that was stopped for long does not disturb the consumer that has claimed its work. Work of erased
-- sessions is deleted.
--
-- If the session was woken again since the work was assigned, the work is due at once, so that a command is not delayed.

local count, at = 0, mark()
call('ZCARD', KEYS[6])
call('XLEN', KEYS[3])
for i = 5, #ARGV, 4 do
  local session = ARGV[i]
  local work = read(session)
  if work and work.holder == consumer then
    local score = order_of(call('ZSCORE', KEYS[1], session))
    if not score then
      call('HDEL', KEYS[5], session)
    else
      local delay = tonumber(ARGV[i + 2])
      work.flags = 'r'
      if score > work.order and score <= at then delay, work.flags = 0, '' end
      work.holder, work.attempt, work.delay, work.error = '', tonumber(ARGV[i + 1]), delay, ARGV[i + 3]
      -- A full server refuses this first write, and with it the whole script. A later refusal would leave half of it done.
      write(session, work)
      call('ZADD', KEYS[6], text_of(now + delay), session)
      if delay == 0 then hint(session, work.position) end
      count = count + 1
    end
  end
end
if count > 0 then call('HSET', KEYS[4], place .. ':clock', text_of(now)) end
return count
