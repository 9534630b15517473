import { Value } from '../../components/text.tsx';
import type { Run } from './trace-source.ts';

interface AttachmentUrl {
  readonly presigned_url?: string;
  readonly mime_type?: string;
}
/** Images that a browser shows without running anything. */
const images = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

/** Attachments of a run: images inline, others as downloads. */
export function Attachments({ run }: { readonly run: Run }) {
  const found = Object.entries((run.s3_urls ?? {}) as Record<string, AttachmentUrl>).filter(([key]) =>
    key.startsWith('attachment.'),
  );
  if (found.length === 0) return null;
  return (
    <section aria-label="Attachments" className="stack">
      <h2>Attachments</h2>
      <ul className="attachments">
        {found.map(([key, { presigned_url: url, mime_type: type = '' }]) => {
          const name = key.slice('attachment.'.length);
          // The API can have another name for itself than the browser; the path is the same.
          const path = url === undefined ? undefined : new URL(url, window.location.origin).pathname;
          return (
            <li key={key}>
              {path !== undefined && images.includes(type) && <img src={path} alt={name} loading="lazy" />}
              <a href={path} download={name}>
                <Value text={name} />
              </a>
              <span className="muted">{type}</span>
            </li>
          );
        })}
      </ul>
    </section>
  );
}
