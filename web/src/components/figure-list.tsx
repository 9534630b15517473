import type { ReactNode } from 'react';

/** Figures by their labels. Those that are false, null or undefined are left out. */
export function FigureList({
  figures,
  className = 'figures',
}: {
  readonly figures: Readonly<Record<string, ReactNode>>;
  readonly className?: string;
}) {
  const shown = Object.entries(figures).filter(([, value]) => value !== false && value !== null && value !== undefined);
  return (
    <dl className={className}>
      {shown.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
