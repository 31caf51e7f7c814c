// Story: the source above, the output below, and lines between them for all tokens at once.

views.story = {
  name: "Story",
  sections: ["story"],
  lead: () => "Each line is an attention weight: the thicker, the more the token below attends to the token above.",
  measure() {},
  draw(isNew) {},
  scene: (colours) => new Scene(100, 100),
};
