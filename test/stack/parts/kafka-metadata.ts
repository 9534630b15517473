import { askPort } from '../ask-port.ts';

const metadataKey = 3;
const version = 4;

/**
 * Requests the cluster metadata without topics from a broker (Kafka protocol, Metadata request version 4), and checks
 * that it lists a broker with this port. @returns `ready`, or the reason why not. Never rejects.
 */
export async function checkKafka(port: number): Promise<string> {
  const result = await askPort(
    port,
    metadataRequest(),
    (bytes) => bytes.length >= 4 && bytes.length - 4 >= bytes.readInt32BE(),
  );
  if ('reason' in result) return result.reason;
  try {
    const ports = brokerPorts(result.answer);
    return ports.includes(port) ? 'ready' : `the cluster metadata list other ports: ${ports.join(', ') || 'none'}`;
  } catch {
    return 'the response is not a Kafka response';
  }
}

function metadataRequest(): Buffer {
  const client = Buffer.from('runlake-stack');
  const header = Buffer.alloc(10);
  header.writeInt16BE(metadataKey, 0);
  header.writeInt16BE(version, 2);
  header.writeInt32BE(1, 4);
  header.writeInt16BE(client.length, 8);
  // The request names no topics, and does not allow automatic creation of topics.
  const body = Buffer.from([0, 0, 0, 0, 0]);
  const length = Buffer.alloc(4);
  length.writeInt32BE(header.length + client.length + body.length);
  return Buffer.concat([length, header, client, body]);
}

function brokerPorts(answer: Buffer): number[] {
  // After length, correlation id and throttle time, the response has the number of brokers, then id, host, port and
  // rack of each broker.
  let at = 12;
  const count = answer.readInt32BE(at);
  at += 4;
  return Array.from({ length: count }, () => {
    at += 4;
    at += 2 + answer.readInt16BE(at);
    const port = answer.readInt32BE(at);
    at += 4;
    at += 2 + Math.max(0, answer.readInt16BE(at));
    return port;
  });
}
