import { followHistories } from './follow-histories.ts';
import { openStreams } from './streams-under-test.ts';

followHistories('in-process', () => openStreams(), [1, 2]);
