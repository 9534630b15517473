import { type Encoder, type EncoderOptions, openEncoder } from './encoder.ts';

/** Pool of encoders, each used by one caller at a time. Returned encoders are reused, and close after 30 s of idle time. */
export interface EncoderPool {
  borrow(): Encoder;
  giveBack(encoder: Encoder): void;
  /** Closes all encoders; requests of borrowed ones fail. */
  close(): Promise<void>;
}

const idleMs = 30_000;

export function openEncoderPool(options: EncoderOptions): EncoderPool {
  const all = new Set<Encoder>();
  const idle = new Map<Encoder, NodeJS.Timeout>();
  const end = (encoder: Encoder) => {
    clearTimeout(idle.get(encoder));
    idle.delete(encoder);
    all.delete(encoder);
    return encoder.close();
  };
  return {
    borrow() {
      const [free] = idle.keys();
      if (free === undefined) {
        const encoder = openEncoder(options);
        all.add(encoder);
        return encoder;
      }
      clearTimeout(idle.get(free));
      idle.delete(free);
      return free;
    },
    giveBack(encoder) {
      if (!all.has(encoder)) return;
      idle.set(
        encoder,
        setTimeout(() => void end(encoder), idleMs),
      );
    },
    close: async () => void (await Promise.all([...all].map(end))),
  };
}
