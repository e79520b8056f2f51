-- Turn a work into a dead letter, with the reason. No consumer gets the work again unless the letter is redriven.
--
-- KEYS  1 to 6 see work.lua · 7 head hash · 8 dead letters stream
-- ARGV  1 to 4 see work.lua · 5 session · 6 order number of the assigned work · 7 position up to which the consumer has
--       read · 8 attempts · 9 reason · 10 first bytes of the faulty entry · 11 its full size · 12 most letters to keep
--
-- Returns the id of the letter, or "" if the session was erased or the work is no longer assigned to this consumer. So a
-- repeat adds nothing. The groups hash counts the letters that were deleted to make room.
--
-- Fields of a letter: s session, z position, n attempts, r reason, t milliseconds, w consumer, l size of the faulty entry,
-- b its first bytes.

local session = ARGV[5]
local work = read(session)
call('XLEN', KEYS[8]) -- if a key has a wrong type, these reads end the script before its first write
call('ZCARD', KEYS[6])
if not work or work.holder ~= consumer then return '' end
local id = ''
if call('ZSCORE', KEYS[1], session) then
  id = call('XADD', KEYS[8], '*', 's', session, 'z', work.position, 'n', ARGV[8], 'r', ARGV[9], 't', text_of(now),
    'w', consumer, 'l', ARGV[11], 'b', ARGV[10])
  local dropped = call('XTRIM', KEYS[8], 'MAXLEN', '=', ARGV[12])
  if dropped > 0 and type(redis.pcall('HINCRBY', KEYS[4], ':dropped:' .. group, dropped)) == 'table' then
    call('HSET', KEYS[4], ':dropped:' .. group, dropped) -- a foreign client has damaged the count
  end
end
settle(session, KEYS[7], tonumber(ARGV[6]), tonumber(ARGV[7]))
return id
