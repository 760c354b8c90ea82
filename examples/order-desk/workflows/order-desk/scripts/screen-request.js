/**
 * Screening: who is asking, and may they?
 *
 * Takes the first e-mail address of the first user message. Advances to identify-case when an order carries it, and to
 * decline when there is none, when no order carries it, or when the message names another customer or its order. Unreadable
 * records throw, which fails the state.
 */
const RECORDS = "skills/order-data/assets/orders.json";

export default async function ({ tools }) {
  const { messages } = JSON.parse(await tools.archmax_get_history());
  const text = messages.find(({ role }) => role === "user")?.text ?? "";
  const orders = JSON.parse(await tools.read_file({ file_path: RECORDS }));
  const decline = (reason) => tools.archmax_advance({ to: "decline", reason });

  const address = text.match(/[\w.+-]+@[\w-]+(?:\.[\w-]+)+/)?.[0].toLowerCase();
  if (!address) return decline("the message holds no e-mail address");
  const company = orders.find(({ email }) => email.toLowerCase() === address)?.customer;
  if (!company) return decline(`no order belongs to the address ${address}`);

  // the reason names the address and never what was asked for: decline reads it out
  const lower = text.toLowerCase();
  const names = (word) => lower.includes(word.toLowerCase());
  const foreign = orders.filter(({ customer }) => customer !== company).some(({ id, customer }) => names(id) || names(customer));
  if (foreign) return decline(`the address ${address} asks about another customer`);

  await tools.archmax_advance({ to: "identify-case", reason: `the requester writes for ${company}` });
}
