-- Done with work: nothing is left to do in these sessions, as far as the consumer has read them.
--
-- KEYS  1 to 6 see scripts/work.lua · then the head hash of each session
-- ARGV  1 to 4 see there · then for each
--       session · order number that it was given for · position up to which the consumer has looked
--
-- Gives how many were this consumer's. What another one has by now is left to it.

local count = 0
for i = 7, #KEYS do call('HGET', KEYS[i], 'state') end -- ends it here, before its first write, where one is no hash
for i = 5, #ARGV, 3 do
  local work = read(ARGV[i])
  if work and work.holder == consumer then
    settle(ARGV[i], KEYS[7 + (i - 5) / 3], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]))
    count = count + 1
  end
end
return count
