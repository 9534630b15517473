const paths = {
  projects: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h7',
  datasets:
    'M3 4c0-1 2.2-1.7 5-1.7s5 .7 5 1.7-2.2 1.7-5 1.7-5-.7-5-1.7v8c0 1 2.2 1.7 5 1.7s5-.7 5-1.7V4M3 8c0 1 2.2 1.7 5 1.7s5-.7 5-1.7',
  prompts: 'M2.5 3h11v8h-6l-3 2.5V11h-2zM5 6h6M5 8.2h4',
  queues: 'M6 4.5h7.5M6 8h7.5M6 11.5h7.5M2 4.5l.8.8L4.2 3.8M2 8l.8.8L4.2 7.3M2.5 11.5h1',
  usage: 'M3 13V8M6.5 13V3M10 13V6M13.5 13V10',
  agents: 'M3.5 6.5h9v6h-9zM8 6.5V3.5M8 3.5h.01M6 9.5h.01M10 9.5h.01M1.5 9v1.5M14.5 9v1.5',
  exports: 'M8 2.5v7M5 6.5l3 3 3-3M2.5 10.5v3h11v-3',
  settings: 'M2.5 5h6M11.5 5h2M2.5 11h2M7.5 11h6M10 3.5v3M6 9.5v3',
  system: 'M2.5 3.5h11v4h-11zM2.5 9.5h11v3.5h-11zM5 5.5h.01M5 11.25h.01',
  sun: 'M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1',
  moon: 'M12.5 9.5A5.5 5.5 0 0 1 6.5 3.5a5 5 0 1 0 6 6z',
  screen: 'M2 3h12v8H2zM6 13.5h4',
  close: 'M4 4l8 8M12 4l-8 8',
  menu: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h11',
  chevron: 'M6 4l4 4-4 4',
  leave: 'M6.5 2.5h-4v11h4M6.5 8h7M11 5.5 13.5 8 11 10.5',
  columns: 'M2.5 3h11v10h-11zM6.2 3v10M9.8 3v10',
  clock: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M8 5v3l2 1.5',
  refresh: 'M13 8a5 5 0 1 1-1.5-3.5M13 2.5v3h-3',
  share: 'M6.5 9.5l3-3M5 7.5 3.5 9a2.5 2.5 0 0 0 3.5 3.5L8.5 11M7.5 5 9 3.5A2.5 2.5 0 0 1 12.5 7L11 8.5',
} as const;

export type IconName = keyof typeof paths;

/** An icon beside a text, or in a button with an accessible name. */
export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg className="icon-image" width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">
      <path
        d={paths[name]}
        fill="none"
        stroke="currentColor"
        strokeWidth="1.4"
        strokeLinecap="round"
        strokeLinejoin="round"
      />
    </svg>
  );
}
