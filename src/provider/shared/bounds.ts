/**
 * When an instance takes no more signals. A claim reads 10,000 messages in a second or so; a replay of 50,000 events
 * takes seconds, in which its process runs nothing else. Temporal has the same limits (10,000 signals, 51,200 events).
 */
export const mostWaiting = 10_000
export const mostEvents = 50_000
