/**
 * Wire protocol of a proxied connection: splits the byte stream into messages, matches responses to requests, and
 * rewrites responses.
 */
export interface Protocol {
  /**
   * Creates a message splitter for one direction of one connection. Each call takes received bytes and returns the
   * messages that are now complete, in order.
   */
  splitRequests(): (data: Buffer) => Buffer[];
  splitAnswers(): (data: Buffer) => Buffer[];
  /** Returns the id that a response shares with its request; undefined if responses come in request order. */
  requestId(message: Buffer): number | undefined;
  answerId(message: Buffer): number | undefined;
  rewriteAnswer(message: Buffer): Buffer;
}

export interface ProxyAddresses {
  /** Port of the server; `to` is the port of the proxy in front of it. */
  readonly from: number;
  readonly to: number;
}

/**
 * Treats each chunk as a message: for HTTP and Postgres, whose clients in these tests have one request in flight on a
 * connection.
 */
export function plain(_ports: ProxyAddresses): Protocol {
  const passChunk = () => (data: Buffer) => [data];
  return {
    splitRequests: passChunk,
    splitAnswers: passChunk,
    requestId: () => undefined,
    answerId: () => undefined,
    rewriteAnswer: (message) => message,
  };
}

/**
 * Returns Kafka's protocol: length, then API key, version and correlation id in requests, and the correlation id in
 * responses. Brokers return their advertised address; the proxy replaces it with its own, which has the same number of
 * bytes.
 */
export function kafkaProtocol({ from, to }: ProxyAddresses): Protocol {
  const serverAddress = encodeAdvertisedAddress(from);
  const proxyAddress = encodeAdvertisedAddress(to);
  return {
    splitRequests: createLengthSplitter,
    splitAnswers: createLengthSplitter,
    requestId: (message) => message.readInt32BE(8),
    answerId: (message) => message.readInt32BE(4),
    rewriteAnswer(message) {
      for (let at = message.indexOf(serverAddress); at >= 0; at = message.indexOf(serverAddress, at + 1))
        proxyAddress.copy(message, at);
      return message;
    },
  };
}

function encodeAdvertisedAddress(port: number): Buffer {
  const bytes = Buffer.alloc(13);
  bytes.write('127.0.0.1');
  bytes.writeInt32BE(port, 9);
  return bytes;
}

function createLengthSplitter(): (data: Buffer) => Buffer[] {
  let chunks: Buffer[] = [];
  let size = 0;
  return (data) => {
    chunks.push(data);
    size += data.length;
    const messages: Buffer[] = [];
    for (;;) {
      const [first] = chunks;
      if (first === undefined || size < 4) return messages;
      if (first.length < 4) chunks = [Buffer.concat(chunks)];
      const length = 4 + (chunks[0] as Buffer).readInt32BE(0);
      if (size < length) return messages;
      const all = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
      messages.push(Buffer.from(all.subarray(0, length)));
      const rest = all.subarray(length);
      chunks = rest.length > 0 ? [rest] : [];
      size = rest.length;
    }
  };
}

const produceKey = 0;
const offsetCommitKey = 8;

/** Recognises a produce request for `topic`. */
export const isProduce = (topic: string) => (message: Buffer) =>
  message.readInt16BE(4) === produceKey && message.includes(topic);

/** Recognises an offset commit, which follows a batch. */
export const isCommit = (message: Buffer) => message.readInt16BE(4) === offsetCommitKey;

/** Recognises an SQL statement in the body or the URL of a request. */
export const says = (statement: RegExp) => (message: Buffer) =>
  statement.test(message.toString('latin1', 0, 16_384).replace(/\+|%20/g, ' '));
