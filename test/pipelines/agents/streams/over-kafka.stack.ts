import { describe } from 'vitest';
import {
  type KafkaServers,
  kafkaServers,
  openKafkaUnderTest,
} from '../../../infra/event-log/kafka/kafka-under-test.ts';
import { followHistories } from './follow-histories.ts';
import { openStreams } from './streams-under-test.ts';

const servers = kafkaServers();

async function open() {
  const kafka = await openKafkaUnderTest(servers as KafkaServers);
  const under = await openStreams(() => kafka.open());
  return {
    ...under,
    async close() {
      await under.close();
      await kafka.close();
    },
  };
}

describe.runIf(servers)('on real servers', () => followHistories('Kafka', open, [1]));
