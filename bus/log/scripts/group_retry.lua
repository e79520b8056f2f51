-- Put work off: it is given to any consumer of the group when it is due.
--
-- KEYS  see scripts/work.lua
-- ARGV  1 to 4 see there · then for each
--       session · attempts so far · milliseconds until it is due · what went wrong
--
-- Gives how many were put off. Only what is this consumer's is touched, so a repeat after a lost answer changes nothing,
-- and one that was stopped for long takes nothing from those who went on with it. Of an erased session nothing is kept.
-- What was woken again since it was given is due at once: a command to a session that waits is not to wait with it.

local count, at = 0, mark()
call('ZCARD', KEYS[6])
call('XLEN', KEYS[3])
for i = 5, #ARGV, 4 do
  local session = ARGV[i]
  local work = read(session)
  if work and work.holder == consumer then
    local score = tonumber(call('ZSCORE', KEYS[1], session) or nil)
    if not score then
      call('HDEL', KEYS[5], session)
    else
      local delay = tonumber(ARGV[i + 2])
      work.flags = 'r'
      if score > work.order and score <= at then delay, work.flags = 0, '' end
      work.holder, work.attempt, work.delay, work.error = '', tonumber(ARGV[i + 1]), delay, ARGV[i + 3]
      -- First what a server without memory refuses: it then does nothing of this.
      write(session, work)
      call('ZADD', KEYS[6], text_of(now + delay), session)
      if delay == 0 then hint(session, work.position) end
      count = count + 1
    end
  end
end
if count > 0 then call('HSET', KEYS[4], group .. ':clock', text_of(now)) end
return count
